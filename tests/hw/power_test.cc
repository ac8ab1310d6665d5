// The power meter over sensor trees that a test writes: what each sensor covers, sensors that count
// once, counters that wrap, and the note if nothing can be read.
#include "hw/power.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "support/temp_dir.h"
#include "support/wait.h"

namespace weft {
namespace {

namespace fs = std::filesystem;

class Power : public testing::Test {
  protected:
    void Write(const std::string& path, const std::string& text) {
        const fs::path whole = dir_ / ("sys/class/" + path);
        fs::create_directories(whole.parent_path());
        // Replaced atomically, like the kernel's: the meter's thread reads meanwhile.
        const std::string part = whole.string() + ".part";
        std::ofstream(part) << text << "\n";
        fs::rename(part, whole);
    }
    void Rapl(const std::string& zone, const std::string& name, uint64_t uj, uint64_t range) {
        Write("powercap/" + zone + "/name", name);
        Write("powercap/" + zone + "/max_energy_range_uj", std::to_string(range));
        Write("powercap/" + zone + "/energy_uj", std::to_string(uj));
    }
    void Hwmon(const std::string& number, const std::string& name,
               const std::vector<std::pair<std::string, std::string>>& files) {
        Write("hwmon/" + number + "/name", name);
        for (const auto& [file, text] : files) Write("hwmon/" + number + "/" + file, text);
    }
    std::vector<std::string> Names() {
        PowerMeter meter(dir_.path());
        std::vector<std::string> names;
        for (const PowerReading& reading : meter.Read()) names.push_back(reading.sensor);
        return names;
    }
    // A reading in which the first sensor has counted `joules` more, and bounds of the time between
    // both readings.
    struct More {
        std::vector<PowerReading> readings;
        double least_s = 0, most_s = 0;
    };
    static More ReadMore(PowerMeter& meter, const std::vector<PowerReading>& before,
                         double joules) {
        const int64_t begin_ns = NowNs();
        const auto seconds = [&] { return static_cast<double>(NowNs() - begin_ns) * 1e-9; };
        More more;
        EXPECT_TRUE(test::Until([&] {
            more.least_s = seconds();
            more.readings = meter.Read();
            return more.readings[0].joules >= before[0].joules + joules;
        }));
        more.most_s = seconds();
        return more;
    }
    using Strings = std::vector<std::string>;

    test::TempDir dir_;
};

// The platform's zone includes the packages.
TEST_F(Power, EnergyOfProcessorsIsThatOfPackages) {
    ::setenv("WEFT_POWER_ROOT", dir_.path().c_str(), 1);
    EXPECT_EQ(ProcessorEnergyUj(), -1);
    Rapl("intel-rapl:0", "package-0", 700, 1 << 20);
    Rapl("intel-rapl:1", "psys", 5000, 1 << 20);
    Rapl("intel-rapl:2", "package-1", 11, 1 << 20);
    EXPECT_EQ(ProcessorEnergyUj(), 711);
    ::unsetenv("WEFT_POWER_ROOT");
}

TEST_F(Power, PackagesAndTheirMemoryCountAndWrap) {
    Rapl("intel-rapl:0", "package-0", 1'000'000, 10'000'000);
    Rapl("intel-rapl:0:0", "core", 500'000, 10'000'000);
    Rapl("intel-rapl:0:1", "dram", 0, 10'000'000);
    Rapl("intel-rapl:1", "package-1", 9'000'000, 10'000'000);
    Rapl("intel-rapl-mmio:0", "package-0", 1'000'000, 10'000'000);
    PowerMeter meter(dir_.path());
    EXPECT_EQ(meter.note(), "");
    Rapl("intel-rapl:0", "package-0", 3'500'000, 10'000'000);
    Rapl("intel-rapl:0:1", "dram", 250'000, 10'000'000);
    Rapl("intel-rapl:1", "package-1", 1'000'000, 10'000'000);  // past its end
    const auto readings = meter.Read();
    ASSERT_EQ(readings.size(), 3u);
    EXPECT_EQ(readings[0].sensor, "RAPL package-0: a processor");
    EXPECT_NEAR(readings[0].joules, 2.5, 1e-9);
    EXPECT_EQ(readings[1].sensor, "RAPL dram: a processor's memory");
    EXPECT_NEAR(readings[1].joules, 0.25, 1e-9);
    EXPECT_NEAR(readings[2].joules, 2.0, 1e-9);
    // Again; a failed reading loses nothing.
    fs::remove(dir_ / "sys/class/powercap/intel-rapl:0/energy_uj");
    EXPECT_NEAR(meter.Read()[0].joules, 2.5, 1e-9);
    Rapl("intel-rapl:0", "package-0", 4'500'000, 10'000'000);
    EXPECT_NEAR(meter.Read()[0].joules, 3.5, 1e-9);
}

TEST_F(Power, WattsAreSummedOverTime) {
    Hwmon("hwmon3", "amdgpu", {{"power1_average", "40000000"}, {"in0_label", "vddgfx"}});
    PowerMeter meter(dir_.path());
    const auto before = meter.Read();
    const auto [after, least_s, most_s] = ReadMore(meter, before, 40 * 0.35);
    ASSERT_EQ(after.size(), 1u);
    EXPECT_EQ(after[0].sensor, "amdgpu hwmon3 power1_average: a card");
    const double joules = after[0].joules - before[0].joules;
    EXPECT_GE(joules, 40 * least_s);
    EXPECT_LE(joules, 40 * (most_s + 0.05));
}

TEST_F(Power, AnApuIsCountedOnce) {
    Rapl("intel-rapl:0", "package-0", 1, 10);
    Hwmon("hwmon1", "nvme", {{"temp1_input", "30000"}});
    Hwmon("hwmon4", "amdgpu", {{"power1_input", "55000000"}, {"in1_label", "vddnb"}});
    Hwmon("hwmon5", "amdgpu", {{"power1_average", "80000000"}, {"in0_label", "vddgfx"}});
    EXPECT_EQ(Names(), (Strings{"amdgpu hwmon4 power1_input: the processor with its GPU",
                                "amdgpu hwmon5 power1_average: a card"}));
    // An unreadable package does not matter then.
    fs::remove(dir_ / "sys/class/powercap/intel-rapl:0/energy_uj");
    EXPECT_EQ(PowerMeter(dir_.path()).note(), "");
}

TEST_F(Power, IntelsCardsCountEnergy) {
    Hwmon("hwmon2", "xe", {{"energy1_input", "5000000"}, {"energy2_input", "7"}});
    Hwmon("hwmon6", "i915", {{"energy1_input", "1000000"}});
    PowerMeter meter(dir_.path());
    Hwmon("hwmon2", "xe", {{"energy1_input", "9000000"}});
    const auto readings = meter.Read();
    ASSERT_EQ(readings.size(), 2u);
    EXPECT_NEAR(readings[0].joules, 4, 1e-9);
    EXPECT_EQ(readings[1].sensor, "i915 hwmon6 energy1_input: a card");
}

TEST_F(Power, ASensorOfTheWholeMachineReplacesItsParts) {
    Rapl("intel-rapl:0", "package-0", 1, 10);
    Hwmon("hwmon0", "power_meter", {{"power1_average", "300000000"}});
    Hwmon("hwmon1", "amdgpu", {{"power1_average", "80000000"}});
    EXPECT_EQ(Names(), (Strings{"power_meter hwmon0 power1_average: the whole machine"}));
}

TEST_F(Power, CardsOfNvml) {
    fs::create_symlink(WEFT_FAKE_NVML, dir_ / "libnvidia-ml.so.1");
    PowerMeter meter(dir_.path());
    const auto before = meter.Read();
    const auto [after, least_s, most_s] = ReadMore(meter, before, 200 * 0.3);
    ASSERT_EQ(after.size(), 2u);
    EXPECT_EQ(after[0].sensor, "NVML 0 Card A: a card");
    EXPECT_EQ(after[1].sensor, "NVML 1 Card B: a card");
    EXPECT_GE(after[0].joules - before[0].joules, 0.999 * 200 * least_s);
    EXPECT_GE(after[1].joules - before[1].joules, 75 * least_s);
}

TEST_F(Power, WithoutSensorsReportsNone) {
    PowerMeter meter(dir_.path());
    EXPECT_TRUE(meter.Read().empty());
    EXPECT_TRUE(meter.note().starts_with("no power sensor: ")) << meter.note();
}

TEST_F(Power, UnreadableSensorsAreNamedWithTheNextStep) {
    Rapl("intel-rapl:0", "package-0", 1, 10);
    Rapl("intel-rapl:1", "package-1", 1, 10);
    const fs::path file = dir_ / "sys/class/powercap/intel-rapl:0/energy_uj";
    for (const char* text : {"", "-5", "nan", "energy"}) {  // not a counter
        std::ofstream(file) << text;
        PowerMeter meter(dir_.path());
        EXPECT_EQ(meter.Read().size(), 1u) << text;
        EXPECT_TRUE(meter.note().starts_with("cannot read " + file.string())) << meter.note();
    }
    if (::geteuid() == 0) GTEST_SKIP() << "root may read every file";
    fs::permissions(file, fs::perms::none);
    EXPECT_NE(PowerMeter(dir_.path()).note().find("sudo chmod a+r " + file.string()),
              std::string::npos);
}

}  // namespace
}  // namespace weft
