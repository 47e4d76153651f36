"""Results as text, CSV, pictures and pages; matplotlib is imported when a picture is drawn."""
