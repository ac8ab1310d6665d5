#include "doctor/facts.h"

#include <algorithm>

#include "doctor/rdma.h"

namespace weft::doctor {

Reading CommandLike(HostView& view, const std::string& words) {
    Reading reading = view.Command(words);
    if (reading.state != ReadState::kAbsent || view.Complete()) return reading;
    const std::string path = CommandPath(words);
    for (const std::string& name : view.List("cmd")) {
        if (("cmd/" + name).starts_with(path)) return view.Read("cmd/" + name);
    }
    return reading;
}

bool HasRdma(HostView& view) {
    if (!view.List("sys/class/infiniband").empty()) return true;
    if (Contains(view.Command("ibstat").text, "CA '")) return true;
    return !view.Complete() && !RdmaPorts(view).empty();
}

bool IsVirtualMachine(HostView& view) {
    const Reading cpu = view.Read("proc/cpuinfo");
    if (!cpu.found()) return false;
    for (std::string_view line : Lines(cpu.text)) {
        if (line.starts_with("flags")) return Contains(line, " hypervisor");
    }
    return false;
}

std::string KernelRelease(HostView& view) {
    std::string release = view.Text("proc/sys/kernel/osrelease");
    release.resize(std::min(release.find('\n'), release.size()));
    if (!release.empty() || view.Complete()) return release;
    const Reading uname = view.Command("uname -r");
    if (uname.found()) return std::string(Trim(uname.text));
    const Reading version = view.Read("proc/version");
    return std::string(After(version.text, "Linux version ", " "));
}

std::optional<Version> KernelVersion(HostView& view) {
    return ParseVersion(KernelRelease(view));
}

std::optional<double> MemInfo(HostView& view, const std::string& name) {
    const Reading info = view.Read("proc/meminfo");
    if (!info.found()) return {};
    for (std::string_view line : Lines(info.text)) {
        if (!line.starts_with(name + ":")) continue;
        const auto kib = LeadingNumber(line.substr(name.size() + 1));
        if (kib && Contains(line, "kB")) return *kib * 1024;
    }
    return {};
}

std::vector<std::string> Numbered(HostView& view, const std::string& folder,
                                  const std::string& prefix) {
    std::vector<std::pair<int64_t, std::string>> found;
    for (const std::string& name : view.List(folder)) {
        if (!name.starts_with(prefix)) continue;
        const auto number = Integer(std::string_view(name).substr(prefix.size()));
        if (number) found.emplace_back(*number, name);
    }
    std::ranges::sort(found);
    std::vector<std::string> names;
    for (auto& [number, name] : found) names.push_back(std::move(name));
    return names;
}

std::string Joined(const std::vector<std::string>& words) {
    constexpr size_t kMost = 6;
    std::string text;
    for (size_t i = 0; i < std::min(words.size(), kMost); ++i) {
        text += (i == 0 ? "" : ", ") + words[i];
    }
    if (words.size() > kMost) text += " and " + std::to_string(words.size() - kMost) + " more";
    return text;
}

}  // namespace weft::doctor
