"""Results as text, CSV, pictures and pages; plotly and matplotlib are imported when a picture is drawn."""
