// Rules of iptables in the forms that people save: `iptables -S`, `iptables-save`, and the list of
// `iptables -L` with and without -n, -v and --line-numbers.
#pragma once

#include <string>
#include <string_view>

namespace weft::doctor {

// The table `filter` as `iptables -S` writes it, for ParseIptables (packet_filter.h). What a list
// does not show (interfaces without -v) or names in words becomes a match that nobody knows.
std::string IptablesRules(std::string_view text);

}  // namespace weft::doctor
