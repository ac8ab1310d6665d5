// Replaces libnvidia-ml.so.1: two cards, one that counts energy, and one older than Volta.
#include <chrono>
#include <cstdint>
#include <cstdio>

namespace {

double SecondsNow() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch())
        .count();
}

}  // namespace

extern "C" {

int nvmlInit_v2() {
    return 0;
}
int nvmlDeviceGetCount_v2(unsigned* count) {
    *count = 2;
    return 0;
}
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void** device) {
    *device = reinterpret_cast<void*>(static_cast<uintptr_t>(index + 1));
    return 0;
}
int nvmlDeviceGetName(void* device, char* name, unsigned length) {
    std::snprintf(name, length, "Card %c", device == reinterpret_cast<void*>(1) ? 'A' : 'B');
    return 0;
}
int nvmlDeviceGetTotalEnergyConsumption(void* device, unsigned long long* millijoules) {
    if (device != reinterpret_cast<void*>(1)) return 3;  // NVML_ERROR_NOT_SUPPORTED
    *millijoules = static_cast<unsigned long long>(SecondsNow() * 200e3);
    return 0;
}
int nvmlDeviceGetPowerUsage(void*, unsigned* milliwatts) {
    *milliwatts = 75'000;
    return 0;
}
}
