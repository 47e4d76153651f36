"""The service's pages for people: sign-in, list of studies, a page per study, API reference.

    /  /studies/ID  /studies/ID/frontier  /sign-in  /sign-in/issuer  /sign-out  /docs  /assets/...

    pages                    adds the pages to the API's app
    page_route               what all pages share: templates, security headers, errors, and who is signed in
    study_pages              the list of studies, the page of a study, and its frontier
    sign_in, issuer_sign_in  signing in with a token, or through an OpenID Connect issuer
    sessions                 the cookie of a signed-in browser
    api_reference            the API's reference
    templates, assets        rendered by Jinja with autoescape; served as they are

The cookie allows reading pages only: no other route of the app looks at it. Nothing is loaded from elsewhere, and every
page works without its script, which only keeps it up to date.
"""
