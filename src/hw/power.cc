#include "hw/power.h"

#include <cstdio>
#include <memory>
#include <string>

namespace weft {
namespace {

constexpr int kMostPackages = 64;

}  // namespace

int64_t ProcessorEnergyUj() {
    int64_t sum = 0;
    for (int package = 0; package < kMostPackages; ++package) {
        const std::string path =
            "/sys/class/powercap/intel-rapl:" + std::to_string(package) + "/energy_uj";
        const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "r"),
                                                                   &std::fclose);
        long long energy = 0;
        if (file == nullptr || std::fscanf(file.get(), "%lld", &energy) != 1) {
            return package == 0 ? -1 : sum;
        }
        sum += energy;
    }
    return sum;
}

}  // namespace weft
