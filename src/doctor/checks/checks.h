// Declares the functions of the checks. To add a check, add its function in a file of this folder,
// a row in checks.inc, and a good and a bad snapshot in tests/doctor/data.
#pragma once

#include "doctor/check.h"

namespace weft::doctor::checks {

#define HOST_CHECK(function, ...) void function(HostView& view, Findings& out);
#define ACROSS_CHECK(function, ...) void function(Hosts hosts, Findings& out);
#define DEFINED_CHECK(check) extern const Check check;
#define RANKS_CHECK(...)
#include "doctor/checks/checks.inc"
#undef HOST_CHECK
#undef ACROSS_CHECK
#undef DEFINED_CHECK
#undef RANKS_CHECK

}  // namespace weft::doctor::checks
