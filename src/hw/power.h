// Measures the energy that this machine uses, with the sensors that it has.
//
//     PowerMeter meter;                  // starts counting, on its own thread
//     const auto before = meter.Read();  ...  const auto after = meter.Read();
//
// Sensors, each counted once:
//   RAPL       a processor package, and its memory if RAPL counts it separately:
//              /sys/class/powercap/intel-rapl:N, also on AMD; an energy counter that wraps. Source:
//              Linux, Documentation/power/powercap/powercap.rst
//   amdgpu     hwmon: a card; on an APU, the processor with its GPU, in place of the RAPL package.
//              Source: Linux, Documentation/gpu/amdgpu/thermal.rst
//   i915, xe   hwmon: a card; an energy counter.
//   NVML       libnvidia-ml.so.1: a card. Source: NVIDIA, NVML API Reference Guide
//   power_meter  hwmon, from ACPI: the whole machine; it replaces all other sensors.
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

// Energy in microjoules that the processor packages have used since an arbitrary moment, from the
// kernel's powercap tree (RAPL). Use the difference of two readings. If the second reading is
// smaller, the counter has wrapped, which happens after minutes to hours. -1: the counter can't be
// read, as for users other than root and in most virtual machines. Source: Linux,
// Documentation/power/powercap/powercap.rst.
int64_t ProcessorEnergyUj();

struct PowerReading {
    std::string sensor;  // "RAPL package-0: a processor"
    double joules = 0;   // since the meter began
};

// Thread: any, but one at a time.
class PowerMeter {
  public:
    // root: for tests, a folder that is used in place of /, also for NVML's library; "": use /
    // itself.
    explicit PowerMeter(std::string root = RootOfEnvironment());
    PowerMeter(const PowerMeter&) = delete;
    PowerMeter& operator=(const PowerMeter&) = delete;
    ~PowerMeter();

    // Current readings, in a fixed order. Sensors that report watts are integrated over time.
    std::vector<PowerReading> Read();
    // Names the sensors that can't be read, with the next step, or states that there is no sensor.
    // "": no remark.
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
        double range = 0;  // the counter's largest value + 1; 0: the counter does not wrap
        std::optional<double> last{};  // nullopt until a first reading works
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
