# An event behind it may come before it, by the carrier.
s/(h->aside = true;\n[^\n]*\n *)atomic_store\(&h->overtaken, true\);/\1/
