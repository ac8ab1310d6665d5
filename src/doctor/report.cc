#include "doctor/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string_view>
#include <vector>

#include "doctor/gpu.h"
#include "doctor/pci.h"
#include "doctor/text.h"

namespace weft::doctor {
namespace {

constexpr size_t kIndent = 10;  // of lines below a finding

constexpr const char* kColours[] = {"\033[32m", "\033[36m", "\033[33m", "\033[31;1m"};

std::string Label(Severity severity, const ReportStyle& style) {
    std::string label = SeverityName(severity);
    if (severity >= Severity::kWarn) {
        std::ranges::transform(label, label.begin(),
                               [](char c) { return static_cast<char>(c - 'a' + 'A'); });
    }
    label = fmt::format("{:<4}", label);
    return style.colour ? kColours[static_cast<size_t>(severity)] + label + "\033[0m" : label;
}

// Breaks `text` at blanks to fit; indents all lines but the first.
std::string Wrapped(const std::string& text, size_t begin, const ReportStyle& style) {
    std::string out;
    size_t column = begin;
    const std::string clean = Printable(text);
    for (std::string_view word : Words(clean)) {
        if (column > begin && column + 1 + word.size() > style.columns) {
            out += '\n' + std::string(begin, ' ');
            column = begin;
        } else if (column > begin) {
            out += ' ';
            ++column;
        }
        out += word;
        column += word.size();
    }
    return out;
}

void Print(std::string& out, const Finding& finding, size_t name_width, const ReportStyle& style) {
    out += fmt::format("  {}  {:<{}}  ", Label(finding.severity, style), finding.check, name_width);
    out += Wrapped(finding.read, 10 + name_width, style) + '\n';
    const auto line = [&](const char* name, const std::string& text) {
        if (text.empty()) return;
        out += fmt::format("{:{}}{:<8}  ", "", kIndent, name);
        out += Wrapped(text, kIndent + 10, style) + '\n';
    };
    if (finding.severity == Severity::kOk) return;
    line("expected", finding.expected);
    line("why", finding.why);
    if (finding.cost) line("cost", finding.cost->Text());
    line("fix", finding.fix);
}

// "2 warnings"
std::string Counted(size_t count, Severity severity) {
    constexpr const char* kWords[] = {"ok", "note", "warning", "failure"};
    return fmt::format("{} {}{}", count, kWords[static_cast<size_t>(severity)],
                       count == 1 || severity == Severity::kOk ? "" : "s");
}

// "54 checks: 1 warning, 13 ok, 40 had nothing to read": counts each check once, by its worst
// finding. A check without findings had nothing to read, which differs from ok.
std::string Summary(std::span<const Finding> findings, const std::string& host,
                    const ReportStyle& style) {
    std::map<std::string_view, Severity> worst;
    for (const Finding& finding : findings) {
        if (finding.host != host) continue;
        const auto [entry, fresh] = worst.try_emplace(finding.check, finding.severity);
        if (!fresh) entry->second = std::max(entry->second, finding.severity);
    }
    std::string text;
    const auto add = [&](const std::string& words) { text += text.empty() ? words : ", " + words; };
    for (Severity severity : {Severity::kFail, Severity::kWarn, Severity::kNote, Severity::kOk}) {
        const auto count = std::ranges::count_if(
            worst, [&](const auto& entry) { return entry.second == severity; });
        if (count > 0) add(Counted(static_cast<size_t>(count), severity));
    }
    // Findings across hosts belong to no host.
    const bool looked = std::ranges::find(style.hosts, host) != style.hosts.end();
    const size_t checks = looked ? std::max(style.checks, worst.size()) : worst.size();
    if (checks > worst.size()) {
        add(fmt::format("{} had nothing to read", checks - worst.size()));
    }
    return fmt::format("{} check{}: {}", checks, checks == 1 ? "" : "s",
                       text.empty() ? "nothing was found out" : text);
}

}  // namespace

std::vector<std::string> HostLines(HostView& view, bool verbose) {
    std::vector<std::string> lines;
    const std::vector<PciDevice>& devices = PciDevices(view);
    const bool gpu = std::ranges::any_of(devices, &PciDevice::IsComputeGpu);
    if (!gpu && AmdGpus(view).empty() && (view.Complete() || !devices.empty())) {
        lines.emplace_back("no GPU found");
    }
    if (!verbose) return lines;
    view.Command("dmesg");  // an empty log is reported as unread
    for (const auto& [path, why] : view.Unread()) {
        if (path.starts_with("later/")) continue;  // a second reading of a source
        // The kernel's answer if the link is down.
        if (path.starts_with("sys/class/net/") && why == "Invalid argument") continue;
        std::string source = "/" + path;
        if (path.starts_with("cmd/")) {
            source = path.substr(4);
            std::ranges::replace(source, '_', ' ');
        } else if (path.starts_with("probe/") || path.starts_with("link/")) {
            source = path;
        }
        lines.push_back(fmt::format("not read: {}: {}", source, why));
    }
    return lines;
}

std::string Report(std::span<const Finding> findings, const ReportStyle& style) {
    std::vector<std::string> hosts = style.hosts;
    size_t name_width = 0;
    for (const Finding& finding : findings) {
        if (std::ranges::find(hosts, finding.host) == hosts.end()) hosts.push_back(finding.host);
        if (style.verbose || finding.severity != Severity::kOk) {
            name_width = std::max(name_width, finding.check.size());
        }
    }
    std::string out;
    for (const std::string& host : hosts) {
        out += Printable(host) + '\n';
        for (Severity severity :
             {Severity::kFail, Severity::kWarn, Severity::kNote, Severity::kOk}) {
            for (const Finding& finding : findings) {
                if (finding.host != host || finding.severity != severity) continue;
                if (severity == Severity::kOk && !style.verbose) continue;
                Print(out, finding, name_width, style);
            }
        }
        if (const auto lines = style.lines.find(host); lines != style.lines.end()) {
            for (const std::string& line : lines->second) {
                out += fmt::format("  {}\n", Wrapped(line, kIndent, style));
            }
        }
        out += fmt::format("  {}\n\n", Summary(findings, host, style));
    }
    return out;
}

}  // namespace weft::doctor
