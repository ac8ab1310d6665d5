// Compares the configured error correction (FEC) of both ends; if it differs, the link stays down.
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "base/shell_word.h"
#include "doctor/checks/checks.h"
#include "doctor/network.h"
#include "doctor/text.h"

namespace weft::doctor::checks {
namespace {

struct FecPort {
    std::string host, device;
    bool up = false;
    std::set<std::string> set;  // "RS", "BaseR", "Off": configured; empty: automatic
};

// "Configured FEC encodings: Auto Off RS BaseR" from `ethtool --show-fec`. Older versions print
// "Supported/Configured FEC encodings:", which is not a configuration.
std::set<std::string> ConfiguredFec(std::string_view text) {
    std::set<std::string> set;
    for (std::string_view line : Lines(text)) {
        line = Trim(line);
        if (!line.starts_with("Configured FEC encoding")) continue;
        for (std::string_view word : Words(After(line, ":"))) {
            if (word == "Auto") return {};
            set.emplace(word == "None" ? "Off" : word);
        }
    }
    return set;
}

std::vector<FecPort> FecPorts(HostView& view) {
    constexpr double kLeastMegabits = 25000;  // slower links have no FEC
    std::vector<FecPort> ports;
    for (const NetDevice& device : NetDevices(view)) {
        const double most = std::max(device.most_megabits, device.megabits);
        const bool asked = device.physical && !device.wireless && most >= kLeastMegabits;
        if (view.Complete() && !asked) continue;
        const Reading told = view.Command("ethtool --show-fec " + device.name);
        if (!told.found()) continue;
        ports.push_back({view.host(), device.name, device.up, ConfiguredFec(told.text)});
    }
    return ports;
}

std::string FecText(const FecPort& port) {
    std::string words;
    for (const std::string& one : port.set) words += (words.empty() ? "" : " ") + one;
    return fmt::format("{} {}: FEC {}{}", port.host, port.device,
                       words.empty() ? "by its own choice" : words, port.up ? "" : ", no link");
}

bool Share(const FecPort& a, const FecPort& b) {
    return a.set.empty() || b.set.empty() ||
           std::ranges::any_of(a.set, [&](const auto& one) { return b.set.contains(one); });
}

}  // namespace

void AcrossFec(Hosts hosts, Findings& out) {
    std::vector<std::vector<FecPort>> all;
    for (const auto& host : hosts) all.push_back(FecPorts(*host));
    for (size_t a = 0; a < all.size(); ++a) {
        for (size_t b = a + 1; b < all.size(); ++b) {
            // With several ports it is unknown which one is connected to which.
            if (all[a].size() != 1 || all[b].size() != 1) continue;
            const FecPort &one = all[a].front(), &two = all[b].front();
            const std::string read = FecText(one) + "; " + FecText(two);
            if (Share(one, two)) {
                out.Ok(read);
                continue;
            }
            const bool down = !one.up || !two.up;
            out.Add(down ? Severity::kWarn : Severity::kNote, read,
                    "the same FEC on both ends of a cable",
                    down ? "ends that differ in FEC see no link"
                         : "with a switch between them each end has its own",
                    fmt::format("on {}: sudo ethtool --set-fec {} encoding auto; on {}: sudo "
                                "ethtool --set-fec {} encoding auto",
                                ShellWord(one.host), ShellWord(one.device), ShellWord(two.host),
                                ShellWord(two.device)));
        }
    }
}

}  // namespace weft::doctor::checks
