# An event behind it may come before it, by the carrier.
s/(h->beside = true;\n[^\n]*\n *)atomic_store\(&h->overtaken, true\);/\1/
