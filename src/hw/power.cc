#include "hw/power.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>

#include "base/start_thread.h"

namespace weft {
namespace {

namespace fs = std::filesystem;

constexpr int kMostPackages = 64;
constexpr auto kSampleEvery = std::chrono::milliseconds(100);
constexpr double kMicro = 1e-6, kMilli = 1e-3;

std::string WordOf(const std::string& path) {
    std::ifstream file(path);
    std::string word;
    std::getline(file, word);
    return word;
}

// On failure, errno is set.
std::optional<double> NumberIn(const std::string& path) {
    const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "r"),
                                                               &std::fclose);
    if (file == nullptr) return std::nullopt;
    errno = 0;
    double number = 0;
    if (std::fscanf(file.get(), "%lf", &number) == 1 && number >= 0) return number;
    if (errno == 0) errno = ENODATA;
    return std::nullopt;
}

// File names in a folder, sorted.
std::vector<std::string> NamesIn(const std::string& folder) {
    std::vector<std::string> names;
    std::error_code error;
    for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
        names.push_back(at->path().filename());
    }
    std::ranges::sort(names);
    return names;
}

bool Exists(const std::string& path) {
    std::error_code ignored;
    return fs::exists(path, ignored);
}

// The part of NVML's interface that is used; every call returns 0 on success.
struct Nvml {
    using Device = void*;
    int (*init)() = nullptr;
    int (*count)(unsigned*) = nullptr;
    int (*handle)(unsigned, Device*) = nullptr;
    int (*name)(Device, char*, unsigned) = nullptr;
    int (*energy)(Device, unsigned long long*) = nullptr;  // millijoules, since Volta
    int (*power)(Device, unsigned*) = nullptr;             // milliwatts

    template <typename Function>
    static void Find(void* library, const char* symbol, Function& function) {
        function = reinterpret_cast<Function>(::dlsym(library, symbol));
    }
    // Never closes the library.
    static Nvml Open(const std::string& path) {
        Nvml nvml;
        void* library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
        if (library == nullptr) return nvml;
        Find(library, "nvmlInit_v2", nvml.init);
        Find(library, "nvmlDeviceGetCount_v2", nvml.count);
        Find(library, "nvmlDeviceGetHandleByIndex_v2", nvml.handle);
        Find(library, "nvmlDeviceGetName", nvml.name);
        Find(library, "nvmlDeviceGetTotalEnergyConsumption", nvml.energy);
        Find(library, "nvmlDeviceGetPowerUsage", nvml.power);
        return nvml;
    }
    std::optional<double> Energy(Device device) const {
        unsigned long long mj = 0;
        if (energy == nullptr || energy(device, &mj) != 0) return std::nullopt;
        return static_cast<double>(mj) * kMilli;
    }
    std::optional<double> Power(Device device) const {
        unsigned mw = 0;
        if (power == nullptr || power(device, &mw) != 0) return std::nullopt;
        return mw * kMilli;
    }
};

}  // namespace

int64_t ProcessorEnergyUj() {
    const std::string folder = PowerMeter::RootOfEnvironment() + "/sys/class/powercap/intel-rapl:";
    int64_t sum = -1;
    for (int package = 0; package < kMostPackages; ++package) {
        const std::string zone = folder + std::to_string(package);
        const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(
            std::fopen((zone + "/energy_uj").c_str(), "r"), &std::fclose);
        long long energy = 0;
        if (file == nullptr || std::fscanf(file.get(), "%lld", &energy) != 1) return sum;
        // (The zone "psys" is the whole platform, with the packages.)
        if (WordOf(zone + "/name").starts_with("package")) sum = std::max<int64_t>(sum, 0) + energy;
    }
    return sum;
}

std::string PowerMeter::RootOfEnvironment() {
    const char* root = std::getenv("WEFT_POWER_ROOT");
    return root == nullptr ? "" : root;
}

PowerMeter::PowerMeter(std::string root) : root_(std::move(root)) {
    FindRapl();
    FindHwmon();
    FindNvml();
    KeepOneOfEach();
    if (sensors_.empty()) {
        note_ = unreadable_.empty() ? "no power sensor: neither RAPL, nor amdgpu, i915, xe or "
                                      "power_meter under /sys/class/hwmon, nor NVML"
                                    : "no readable power sensor";
    }
    if (!unreadable_.empty()) {
        note_ += fmt::format(
            "{}cannot read {}{}", note_.empty() ? "" : "; ", unreadable_[0],
            unreadable_.size() == 1 ? "" : fmt::format(", and {} more", unreadable_.size() - 1));
    }
    if (sensors_.empty()) return;
    const Status started = StartThread(thread_, [this] { Run(); }, {.wait_ms = 0});
    if (!started.ok()) {
        note_ += fmt::format("{}readings are rare: {}", note_.empty() ? "" : "; ",
                             started.error().message);
    }
}

PowerMeter::~PowerMeter() {
    {
        const std::lock_guard lock(mutex_);
        stopping_ = true;
    }
    stop_.notify_all();
    if (thread_.joinable()) thread_.join();
}

// ---- Sensors ------------------------------------------------------------------------------------

void PowerMeter::AddFile(const std::string& path, double scale, Sensor sensor) {
    if (!NumberIn(path)) {
        const bool denied = errno == EACCES || errno == EPERM;
        unreadable_.push_back(fmt::format(
            "{} ({}){}", path, std::strerror(errno),
            denied ? fmt::format(": 'sudo chmod a+r {}' allows it until the next reboot", path)
                   : ""));
        return;
    }
    sensor.read = [path, scale]() -> std::optional<double> {
        const auto number = NumberIn(path);
        return number ? std::optional(*number * scale) : std::nullopt;
    };
    sensors_.push_back(std::move(sensor));
}

void PowerMeter::AddRapl(const std::string& zone, Kind kind, const std::string& what) {
    Sensor sensor{.name = fmt::format("RAPL {}: {}", WordOf(zone + "/name"), what), .kind = kind};
    const auto range = NumberIn(zone + "/max_energy_range_uj");
    sensor.range = range ? *range * kMicro : 0;
    AddFile(zone + "/energy_uj", kMicro, std::move(sensor));
}

// Adds packages, and memory domains below them; cores are part of their package. (intel-rapl-mmio
// lists the same counters again.)
void PowerMeter::FindRapl() {
    const std::string folder = root_ + "/sys/class/powercap";
    for (const std::string& name : NamesIn(folder)) {
        if (!name.starts_with("intel-rapl:")) continue;
        const std::string zone = folder + "/" + name, what = WordOf(zone + "/name");
        if (what.starts_with("package")) AddRapl(zone, Kind::kPackage, "a processor");
        if (what == "dram") AddRapl(zone, Kind::kMemory, "a processor's memory");
    }
}

void PowerMeter::FindHwmon() {
    const std::string folder = root_ + "/sys/class/hwmon";
    for (const std::string& number : NamesIn(folder)) {
        const std::string at = folder + "/" + number, name = WordOf(at + "/name");
        const auto add = [&](const std::string& file, Kind kind, Unit unit, const char* what) {
            AddFile(at + "/" + file, kMicro,
                    {.name = fmt::format("{} {} {}: {}", name, number, file, what),
                     .kind = kind,
                     .unit = unit});
        };
        const bool average = Exists(at + "/power1_average");
        const std::string watts = average ? "power1_average" : "power1_input";
        if (name == "amdgpu" && Exists(at + "/" + watts)) {
            // Only an APU reports the voltage of a north bridge.
            const bool apu =
                WordOf(at + "/in0_label") == "vddnb" || WordOf(at + "/in1_label") == "vddnb";
            add(watts, apu ? Kind::kApu : Kind::kCard, Unit::kWatts,
                apu ? "the processor with its GPU" : "a card");
        } else if (name == "i915" || name == "xe") {
            const bool second = !Exists(at + "/energy1_input");
            const std::string file = second ? "energy2_input" : "energy1_input";
            if (Exists(at + "/" + file)) add(file, Kind::kCard, Unit::kJoules, "a card");
        } else if (name == "power_meter" && Exists(at + "/" + watts)) {
            add(watts, Kind::kWhole, Unit::kWatts, "the whole machine");
        }
    }
}

void PowerMeter::FindNvml() {
    const std::string library = "libnvidia-ml.so.1";
    const Nvml nvml = Nvml::Open(root_.empty() ? library : root_ + "/" + library);
    if (nvml.init == nullptr || nvml.count == nullptr || nvml.handle == nullptr) return;
    if (const int error = nvml.init(); error != 0) {
        unreadable_.push_back(
            fmt::format("NVML (nvmlInit: error {}): does 'nvidia-smi' work?", error));
        return;
    }
    unsigned count = 0;
    if (nvml.count(&count) != 0) return;
    for (unsigned i = 0; i < count; ++i) {
        Nvml::Device device = nullptr;
        if (nvml.handle(i, &device) != 0) continue;
        char name[96] = "";
        if (nvml.name == nullptr || nvml.name(device, name, sizeof name) != 0) name[0] = 0;
        Sensor sensor{.name = fmt::format("NVML {} {}: a card", i, name)};
        if (nvml.Energy(device)) {
            sensor.read = [nvml, device] { return nvml.Energy(device); };
        } else if (nvml.Power(device)) {
            sensor.unit = Unit::kWatts;
            sensor.read = [nvml, device] { return nvml.Power(device); };
        } else {
            unreadable_.push_back(
                fmt::format("NVML {} {} (it reports neither energy nor power)", i, name));
            continue;
        }
        sensors_.push_back(std::move(sensor));
    }
}

// Removes sensors that another sensor includes.
void PowerMeter::KeepOneOfEach() {
    const auto has = [&](Kind kind) {
        return std::ranges::any_of(sensors_, [&](const Sensor& s) { return s.kind == kind; });
    };
    const bool whole = has(Kind::kWhole), apu = has(Kind::kApu);
    std::erase_if(sensors_, [&](const Sensor& s) {
        return (whole && s.kind != Kind::kWhole) || (apu && s.kind == Kind::kPackage);
    });
    // Do not request permission to read sensors that would not count.
    if (whole || apu) {
        std::erase_if(unreadable_, [&](const std::string& text) {
            return whole || text.find("/powercap/") != std::string::npos;
        });
    }
    for (Sensor& sensor : sensors_) {
        sensor.last = sensor.read();
        sensor.last_ns = std::chrono::steady_clock::now().time_since_epoch().count();
    }
}

// ---- Counting -----------------------------------------------------------------------------------

// A reading that fails is skipped; the next one covers its time.
void PowerMeter::Sample() {
    for (Sensor& sensor : sensors_) {
        const std::optional<double> value = sensor.read();
        if (!value) continue;
        const int64_t now_ns = std::chrono::steady_clock::now().time_since_epoch().count();
        if (!sensor.last) {
            // The first reading only sets the start.
        } else if (sensor.unit == Unit::kWatts) {
            const double seconds = static_cast<double>(now_ns - sensor.last_ns) * 1e-9;
            sensor.joules += (*value + *sensor.last) / 2 * seconds;
        } else {
            double more = *value - *sensor.last;
            if (more < 0) more = sensor.range > 0 ? std::max(0.0, more + sensor.range) : 0;
            sensor.joules += more;
        }
        sensor.last = *value;
        sensor.last_ns = now_ns;
    }
}

void PowerMeter::Run() {
    std::unique_lock lock(mutex_);
    while (!stop_.wait_for(lock, kSampleEvery, [&] { return stopping_; })) Sample();
}

std::vector<PowerReading> PowerMeter::Read() {
    const std::lock_guard lock(mutex_);
    Sample();
    std::vector<PowerReading> readings;
    for (const Sensor& sensor : sensors_) readings.push_back({sensor.name, sensor.joules});
    return readings;
}

}  // namespace weft
