// Declares the checks, and Report, which adds a finding from the table in findings.inc. To add a
// check, add its function in a file of this folder, a row in checks.inc, a row per finding in
// findings.inc, and a good and a bad snapshot in tests/doctor/data.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/shell_word.h"
#include "doctor/check.h"
#include "doctor/cost.h"
#include "doctor/facts.h"
#include "doctor/kernel_log.h"
#include "doctor/network.h"
#include "doctor/pci.h"
#include "doctor/rdma.h"
#include "doctor/remediation.h"
#include "doctor/text.h"

namespace weft::doctor::checks {

#define HOST_CHECK(function, ...) void function(HostView& view, Findings& out);
#define ACROSS_CHECK(function, ...) void function(Hosts hosts, Findings& out);
#define PEERS_CHECK(function, ...) void function(Hosts hosts, Findings& out);
#define RANKS_CHECK(...)
#include "doctor/checks/checks.inc"
#undef HOST_CHECK
#undef ACROSS_CHECK
#undef PEERS_CHECK
#undef RANKS_CHECK

// A row of findings.inc. The texts are fmt format strings for the arguments of Report. <<NAME
// VALUE>> in a fix is replaced by the row NAME of cures.inc with the value VALUE.
struct FindingText {
    Severity severity;
    const char *read, *expected, *why, *fix;
};

using enum Severity;

namespace found {
#define FINDING(name, severity, read, expected, why, fix) \
    inline constexpr FindingText name{Severity::severity, read, expected, why, fix};
#include "doctor/checks/findings.inc"
#undef FINDING
}  // namespace found

// Formats the fix of a row. Replaces each <<NAME VALUE>> by the cure of the host of `out` before it
// inserts the arguments, so an argument cannot name a cure.
std::string FilledIn(const Findings& out, std::string_view fix, fmt::format_args args);

// Adds the finding `text`, with `severity` instead of the row's severity.
template <const FindingText& text, typename... Args>
void ReportAs(Severity severity, Findings& out, const Args&... args) {
    [[maybe_unused]] const fmt::format_string<const Args&...> checked = text.fix;
    const std::string read = fmt::format(text.read, args...);
    const std::string expected = fmt::format(text.expected, args...);
    if (severity == Severity::kOk) return out.Ok(read, expected);
    out.Add(severity, read, expected, fmt::format(text.why, args...),
            FilledIn(out, text.fix, fmt::make_format_args(args...)));
}

// Adds the finding `text`.
template <const FindingText& text, typename... Args>
void Report(Findings& out, const Args&... args) {
    ReportAs<text>(text.severity, out, args...);
}

// Adds the finding `text`, as ok if `fine`.
template <const FindingText& text, typename... Args>
void ReportUnless(bool fine, Findings& out, const Args&... args) {
    ReportAs<text>(fine ? Severity::kOk : text.severity, out, args...);
}

template <typename... Args>
void ReportOk(Findings& out, fmt::format_string<const Args&...> read, const Args&... args) {
    out.Ok(fmt::format(read, args...));
}

// Asks for the cost of the last finding. `change` receives two copies of `link` and sets them to
// the actual link and to the expected link.
template <typename Change>
void EstimateLinkCost(Findings& out, const std::optional<HostLink>& link, Change change) {
    if (!link || out.empty()) return;
    HostLink actual = *link, expected = *link;
    change(actual, expected);
    out.EstimateCost(LinkQuestion(out.view(), actual, expected));
}

// "thunderbolt0: up, MTU 1500, 10.0.1.1". more: text after the state.
std::string InterfaceText(const NetDevice& device, std::string_view more = "");

using HostGroups = std::map<std::string, std::vector<std::string>>;  // host names by a property
// "kernel 6.14 on a; kernel 6.19 on b, c".
std::string TextOf(const HostGroups& groups);

// "a, b, c".
template <typename Range>
std::string ListText(const Range& items) {
    return fmt::format("{}", fmt::join(items, ", "));
}

// Whether the value is in the list.
template <typename List, typename Value>
bool IsIn(const List& list, const Value& value) {
    return std::ranges::find(list, value) != std::ranges::end(list);
}

}  // namespace weft::doctor::checks
