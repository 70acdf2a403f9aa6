# What a failed peer has raised counts as said by this device.
s/return slr_flag_reached\(atomic_load\(&ring->issued\), piece\) &&/return true \&\&/
