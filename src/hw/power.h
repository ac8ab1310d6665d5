// What this machine draws, by the sensors that it has.
//
//     PowerMeter meter;                  // begins to count, on a thread of its own
//     const auto before = meter.Read();  ...  const auto after = meter.Read();
//
// Sensors, each counted once:
//   RAPL       a processor's package, and its memory where that has a domain of its own:
//              /sys/class/powercap/intel-rapl:N, of AMD too; a counter of energy that wraps.
//              Source: Linux, Documentation/power/powercap/powercap.rst
//   amdgpu     hwmon: a card; on an APU the processor with its GPU, and RAPL's package is then left
//              out. Source: Linux, Documentation/gpu/amdgpu/thermal.rst
//   i915, xe   hwmon: a card; a counter of energy.
//   NVML       libnvidia-ml.so.1: a card. Source: NVIDIA, NVML API Reference Guide
//   power_meter  hwmon, by ACPI: the whole machine; it then stands for all others.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

namespace weft {

// Microjoules that the processor packages have used since some moment, from the kernel's powercap
// tree (RAPL); the difference of two readings counts (the counter wraps after minutes to hours: a
// smaller second reading says so). -1: not readable here, as for users other than root, or in most
// virtual machines. Source: Linux, Documentation/power/powercap/powercap.rst.
int64_t ProcessorEnergyUj();

struct PowerReading {
    std::string sensor;  // "RAPL package-0: a processor"
    double joules = 0;   // since the meter began
};

// Thread: any; one at a time.
class PowerMeter {
  public:
    // A folder that stands for / (of tests), in which NVML's library is looked for, too; "": the
    // machine's own.
    explicit PowerMeter(std::string root = RootOfEnvironment());
    PowerMeter(const PowerMeter&) = delete;
    PowerMeter& operator=(const PowerMeter&) = delete;
    ~PowerMeter();

    // As of now, in an order that stays. Watts that a sensor tells are summed up over time.
    std::vector<PowerReading> Read();
    // Sensors that can't be read, and what to do about it; that there is none. "": nothing of that.
    const std::string& note() const { return note_; }
    static std::string RootOfEnvironment();  // WEFT_POWER_ROOT

  private:
    enum class Kind { kPackage, kMemory, kApu, kCard, kWhole };
    enum class Unit { kJoules, kWatts };
    struct Sensor {
        std::string name;
        Kind kind = Kind::kCard;
        Unit unit = Unit::kJoules;
        std::function<std::optional<double>()> read{};
        double range = 0;  // of a counter: one more than its last value; 0: it does not wrap
        std::optional<double> last{};  // none before a first reading worked
        double joules = 0;
        int64_t last_ns = 0;
    };

    void FindRapl();
    void AddRapl(const std::string& zone, Kind kind, const std::string& what);
    void FindHwmon();
    void FindNvml();
    void AddFile(const std::string& path, double scale, Sensor sensor);
    void KeepOneOfEach();
    void Sample();
    void Run();

    const std::string root_;
    std::vector<Sensor> sensors_;
    std::vector<std::string> unreadable_;
    std::string note_;
    std::mutex mutex_;
    std::condition_variable stop_;
    bool stopping_ = false;
    std::thread thread_;
};

}  // namespace weft
