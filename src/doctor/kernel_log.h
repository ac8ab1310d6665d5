// The lines of the kernel's log that checks look at, with the words that kernels and drivers say.
//
// A line is kept where it holds one of the known sentences; of its words those stay that belong to
// the kernel's vocabulary, with times, PCI addresses, short numbers and names of interfaces. Names
// of users and programs, paths, serial numbers and addresses are not among them. The lines that
// come out are lines of a kernel's log again: reading them once more changes nothing.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "doctor/host_view.h"
#include "doctor/names.h"

namespace weft::doctor {

std::vector<std::string> KernelLogLines(std::string_view dmesg, Names& names);
// Of the host's `dmesg`, names as they are.
std::vector<std::string> KernelLogLines(const Reading& dmesg);

}  // namespace weft::doctor
