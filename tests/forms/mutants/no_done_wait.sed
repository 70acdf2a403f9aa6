# A slot is filled again without waiting for its readers.
s/SLR_TRY\(await_slot\([^;]*;/;/
