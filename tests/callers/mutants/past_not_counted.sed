# Only what is seen to be opened is looked at.
s/x\.adds == atomic_load\(&seen_adds\) && //
