"""Data for tasks: reads files, divides examples among clients, generates quadratics and regressions.

    federated, partitions  splits examples among clients; the partitions to choose from
    table                  arrays of a user, from one .npz file
    images, digits_images  images of the data folder; the digits of scikit-learn
    folder, archive        locates data files; reads .npz files
    quadratics, matrices   quadratic losses: generated; read from a document
    regression             synthetic linear regression of clients that share one solution
    client_weights         reads and checks the clients' weights

Tasks import this package, never the reverse.
"""
