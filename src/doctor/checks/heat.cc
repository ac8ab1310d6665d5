// Compares temperatures of cards and GPUs with their own limits.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "doctor/checks/checks.h"
#include "doctor/facts.h"
#include "doctor/text.h"

namespace weft::doctor::checks {
namespace {

constexpr const char* kSensors = "sys/class/hwmon";
constexpr size_t kMostSensors = 64;
constexpr double kClose = 3;  // degrees below the limit

// Driver names under hwmon.
bool IsOfCard(std::string_view name) {
    constexpr std::array<std::string_view, 8> kCards = {"mlx5", "mlx4",  "bnxt_en", "ice",
                                                        "i40e", "ixgbe", "cxgb4",   "atlantic"};
    return std::ranges::find(kCards, name) != kCards.end();
}
bool IsOfGpu(std::string_view name) {
    return name == "amdgpu" || name == "nouveau" || name == "xe" || name == "i915";
}

// hwmon reports thousandths of a degree; nullopt: not a temperature.
std::optional<double> Degrees(HostView& view, const std::string& path) {
    const auto value = Number(view.Text(path));
    if (!value || *value < -50e3 || *value > 250e3) return {};
    return *value / 1000;
}

void LookAtSensor(HostView& view, const std::string& folder, const std::string& sensor,
                  const std::string& name, Findings& out) {
    const std::string path = folder + "/" + sensor;
    const auto now = Degrees(view, path + "_input"), limit = Degrees(view, path + "_crit");
    if (!now || !limit || *limit < 40) return;
    const std::string label = view.Text(path + "_label");
    const std::string read =
        fmt::format("{}{}{}: {:.0f} degrees C", name, label.empty() ? "" : " ", label, *now);
    const std::string expected = fmt::format("below {:.0f}", *limit - kClose);
    if (*now < *limit - kClose) return out.Ok(read, expected);
    const bool card = IsOfCard(name);
    out.Add(*now >= *limit ? Severity::kFail : Severity::kWarn, read, expected,
            card ? "a hot card or module throttles and then drops its link"
                 : "a hot GPU runs at a fraction of its clock, then the machine shuts down",
            card ? "more air over the card (passive server cards need a fan of their own in a "
                   "desktop), clean its heat sink; 'sensors' shows the temperature"
                 : "clean the fans, more air; less power to the GPU or the APU (BIOS, or its tool) "
                   "until then; 'sensors' shows the temperature");
}

}  // namespace

void RunHeat(HostView& view, Findings& out) {
    size_t looked = 0;
    for (const std::string& device : Numbered(view, kSensors, "hwmon")) {
        const std::string folder = fmt::format("{}/{}", kSensors, device);
        const std::string name = view.Text(folder + "/name");
        if (!IsOfCard(name) && !IsOfGpu(name)) continue;
        for (const std::string& file : view.List(folder)) {
            constexpr std::string_view kEnd = "_input";
            if (!file.starts_with("temp") || !file.ends_with(kEnd)) continue;
            if (++looked > kMostSensors) return;
            LookAtSensor(view, folder, file.substr(0, file.size() - kEnd.size()), name, out);
        }
    }
}

}  // namespace weft::doctor::checks
