// Lines of the kernel log that checks use, reduced to known words of kernels and drivers.
//
// Reads `dmesg` in all of its forms (with and without times, -T, -x, -H), `journalctl -k`, and
// syslog files. A line is kept if it contains a known message (log_rules.h). Of its words, those of
// the kernel's vocabulary stay, and PCI addresses, short numbers, drivers and interface names.
// Names of users and programs, paths, serial numbers and addresses are dropped; the time becomes
// seconds since the start of the log. Reading the kept words as a log gives the same result.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "doctor/host_view.h"
#include "doctor/pseudonyms.h"

namespace weft::doctor {

struct LogLine {
    std::string raw;    // as the kernel wrote it, printable, cut to 512 bytes; for display
    std::string known;  // its known words; for checks and snapshots
    std::string lower;  // `known` without the time, in lower case
    std::optional<double> seconds;  // since boot or the log's start
};

// `dmesg` of the host; if it could not be read, `journalctl -k` or syslog's file.
Reading KernelLog(HostView& view);

// The log without UTF-16's zero bytes; kRefused if it is unreadable: empty (as a plain user gets
// it), compressed, or an error message of the program.
Reading ReadableLog(Reading log);

std::vector<LogLine> KernelLogLines(std::string_view log, Pseudonyms& names);
// With real names. Empty if the log was not read.
std::vector<LogLine> KernelLogLines(const Reading& log);

// From Linux 6.6 on, "CPU: 7" in "DRIVER PLACE eth0: NETDEV WATCHDOG: CPU: 7: transmit queue ..."
// stands at the position of the device in older kernels.
bool WatchdogNamesProcessor(std::string_view line);

// Names of network drivers as they appear in the log.
bool IsNetworkDriver(std::string_view word);
// The first word of `line` that is a network driver (below: a GPU driver); "": none. Also in "RIP:
// 0010:mlx5e_poll_rx_cq [mlx5_core]".
std::string_view NetworkDriverIn(std::string_view line);
std::string_view GpuDriverIn(std::string_view line);
// "0000:01:00.0" in a line; "": none.
std::string_view PciAddressIn(std::string_view line);

}  // namespace weft::doctor
