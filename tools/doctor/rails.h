/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SLR_TOOLS_DOCTOR_RAILS_H
#define SLR_TOOLS_DOCTOR_RAILS_H

#include <stdbool.h>
#include "tools/doctor/devices.h"
#include "tools/doctor/doctor.h"

/* Whether each device has an adapter for its rail. `root` has the /sys that is looked at; "": this machine's. `hosts`: of
 * SLIPRING_HOSTS. */
void doctor_check_rails(struct doctor *d, const char *root, bool hosts);

#endif
