// How fast a core is when a message wakes it.
#include <fmt/format.h>

#include "doctor/checks/checks.h"
#include "doctor/facts.h"
#include "doctor/remediation.h"

namespace weft::doctor::checks {
namespace {

constexpr std::string_view kCpus = "sys/devices/system/cpu/";

// The folders of the clocks' settings: one a policy, or (the same by another name) one a core.
std::vector<std::string> Policies(HostView& view) {
    std::vector<std::string> folders;
    const std::string cpus(kCpus);
    for (const std::string& name : Numbered(view, cpus + "cpufreq", "policy")) {
        folders.push_back(cpus + "cpufreq/" + name);
    }
    if (!folders.empty() || view.Complete()) return folders;
    for (const std::string& name : Numbered(view, cpus.substr(0, cpus.size() - 1), "cpu")) {
        if (view.Has(cpus + name + "/cpufreq")) folders.push_back(cpus + name + "/cpufreq");
    }
    return folders;
}

// Whether the hardware chooses the clock, so that "powersave" is a name for "automatic".
bool HardwareDecides(std::string_view driver) {
    return driver == "intel_pstate" || driver == "amd-pstate-epp" || driver == "amd_pstate_epp";
}

std::string ClockText(HostView& view, const std::string& policy) {
    const auto least = Number(view.Text(policy + "/scaling_min_freq"));
    const auto most = Number(view.Text(policy + "/cpuinfo_max_freq"));
    if (!least || !most || *most <= 0) return "";
    return fmt::format(": a core that was idle starts at {:.1f} of {:.1f} GHz", *least * 1e-6,
                       *most * 1e-6);
}

std::string FixOfGovernor(HostView& view) {
    if (DistributionOf(view) == Distribution::kNixOs) {
        return Configure("powerManagement.cpuFreqGovernor = \"performance\";");
    }
    return "echo performance | sudo tee /sys/devices/system/cpu/cpufreq/policy*/scaling_governor "
           "(until the next boot; a service such as tuned or cpupower keeps it)";
}

void RunCpuGovernor(HostView& view, Findings& out) {
    const std::vector<std::string> policies = Policies(view);
    for (const std::string& policy : policies) {
        const std::string name = policy.substr(kCpus.size());
        const std::string governor = view.Text(policy + "/scaling_governor");
        const std::string driver = view.Text(policy + "/scaling_driver");
        const std::string preference = view.Text(policy + "/energy_performance_preference");
        if (governor.empty()) continue;
        std::string read = fmt::format("{}: governor {}, driver {}", name, governor,
                                       driver.empty() ? "not known" : driver);
        if (!preference.empty()) read += fmt::format(", energy preference {}", preference);
        const std::string why = fmt::format(
            "clocks rise over 1 to 50 ms, a token's step takes less{}", ClockText(view, policy));
        if (preference == "power" || preference == "balance_power") {
            return out.Warn(read, "energy preference performance or balance_performance", why,
                            "echo performance | sudo tee /sys/devices/system/cpu/cpufreq/policy*/"
                            "energy_performance_preference");
        }
        // Only where the hardware decides is there a preference.
        if (governor == "performance" || HardwareDecides(driver) || !preference.empty()) continue;
        const std::string fix = FixOfGovernor(view);
        if (governor == "powersave" && !driver.empty())
            return out.Warn(read, "governor performance", why, fix);
        return out.Note(read, "governor performance", why, fix);
    }
    if (!policies.empty()) {
        out.Ok(fmt::format("governor {} on {} policies",
                           view.Text(policies.front() + "/scaling_governor"), policies.size()));
    }
}

}  // namespace

const Check kCpuGovernor = {
    .name = "cpu-governor",
    .what = "CPU frequency governor and energy preference.",
    .reads =
        "/sys/devices/system/cpu/cpufreq/policy*/{scaling_governor,scaling_driver,"
        "energy_performance_preference}",
    .why =
        "A core that saves power is slow in the first milliseconds after a message wakes it, "
        "and a token is nothing but such moments.",
    .run = RunCpuGovernor,
};

}  // namespace weft::doctor::checks
