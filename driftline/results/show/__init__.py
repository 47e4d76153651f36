"""Results as text, CSV, pictures and pages; matplotlib is imported when a picture is drawn.

    text_table                the result as plain text
    trials_csv                trials.csv: one row per trial
    picture                   frontier.png and frontier.svg, PDF, axes of matplotlib
    curves_picture            curves of studies side by side, as papers draw them
    page, page_data, browser  frontier.html; the JSON that its script draws; script, style and form of the page
    axes, palette             titles, scales and ranges of axes; colours, markers and dashes of labels
    advice                    one sentence for one cost
    recommendation_rows       recommendations as one row for each configuration
    importance_rows           how much each hyperparameter matters, as rows, text and cells
    number_text, theory_text  numbers for people; the difference between measurement and theory in words
    escaped_text              escapes untrusted text for terminals, pages and spreadsheets

Shows what `driftline.results` has computed, and computes no results itself.
"""
