// The lines of the kernel's log that checks look at, with the words that kernels and drivers say.
//
// A line is kept where it holds one of the known sentences; of its words those stay that belong to
// the kernel's vocabulary, with times, PCI addresses, short numbers and names of interfaces. Names
// of users and programs, paths, serial numbers and addresses are not among them. The lines of known
// words are lines of a kernel's log again: reading them once more changes nothing.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "doctor/host_view.h"
#include "doctor/names.h"

namespace weft::doctor {

struct LogLine {
    std::string raw;    // as the kernel wrote it, printable, cut to 200 bytes: to be shown
    std::string known;  // its known words: to be looked at, and to be saved
};

std::vector<LogLine> KernelLogLines(std::string_view dmesg, Names& names);
// Of the host's `dmesg`, names as they are.
std::vector<LogLine> KernelLogLines(const Reading& dmesg);

// "CPU: 7" of "DRIVER PLACE eth0: NETDEV WATCHDOG: CPU: 7: transmit queue ..." (from Linux 6.6 on)
// stands where older kernels name the device.
bool WatchdogNamesProcessor(std::string_view line);

}  // namespace weft::doctor
