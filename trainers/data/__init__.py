"""Data for tasks: reads files, divides examples among clients, generates quadratics and regressions.

    federated, partitions  splits examples among clients; the partitions to choose from, by `partition_choice`
    central_choice         the server's own examples
    client_shares          shares of the examples that clients get
    table_task             the task of a user's data in any format; notes on them are in `table_notes`
    table_split            which examples train and which test
    table_validation       which examples are for validation: as a document says, or drawn by `validation_split`
    episodes               few-shot tasks; `table_episodes` makes them from a user's data
    data_source, formats/  where the data are; one module for each format
    format_contract        what a format is: columns of a file or folder
    columns, table         columns of a format, checked; the examples in them; `column_choice` chooses columns
    column_advice          recognises logs of items and texts in columns that no key describes
    table_cache            large tables, converted once and mapped
    remote                 data at a URL, copied into the cache; on a service by `web_files`
    url_prefixes           which URLs a service reads
    named_files            the files and URLs that a document names
    features, scaling      several columns as features, categories one-hot; scales fitted to training clients
    embeddings             categories that a model learns vectors for
    table_targets          the targets of a user's data: classes, numbers, tags or tokens
    words, histories       texts of any length as sentences or bags of words; logs of items as next items
    table_sequences        the keys of a document for texts and logs
    class_labels, tags     class numbers for labels of any kind; any number of labels an example
    vocabulary             numbers in place of strings
    sides, damage          files of training and test examples; errors of damaged files
    transcription          text of tables, written block by block as Arrow tables
    table_files            formats whose files are Arrow tables, read by `arrow_columns`; large ones `streamed_columns`
    json_text              JSON read value by value; its columns grow in `growing_column`
    plain_pickle           pickles of arrays, without executing anything
    image_files            images of one size; `extra` imports optional libraries, `gzipped` opens files
    text_sources, tokens   texts of files and roles; as tokens and windows, with `byte_pairs`
    images, digits_images  images of the data folder; the digits of scikit-learn
    folder, archive        locates data files; reads .npz files
    quadratics, matrices   quadratic losses: generated; read from a document
    regression             synthetic linear regression of clients that share one solution
    client_weights         reads and checks the clients' weights

Tasks import this package, never the reverse.
"""
