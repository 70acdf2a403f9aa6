# slipring stays on in the child.
s/slr_settings_off\(\);/(void)slr_settings_off;/
