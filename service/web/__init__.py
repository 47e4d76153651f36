"""The service's pages for people: sign-in, list of studies, a page per study, API reference.

    /  /studies/ID  /studies/ID/frontier  /sign-in  /sign-in/issuer  /sign-out  /docs  /assets/...

`pages` adds them to the API's app. `page_route` has what all pages share: templates, security headers, errors, and who
is signed in. `sessions` makes and checks the cookie of a signed-in browser. The cookie allows reading pages only: no
other route of the app looks at it. `study_pages`, `sign_in`, `issuer_sign_in` and `api_reference` are the routes.
`templates` are rendered by Jinja with autoescape; `assets` are served as they are. Nothing is loaded from elsewhere,
and every page works without its script, which only keeps it up to date.
"""
