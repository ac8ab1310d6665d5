#include "backend/device_list.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "backend/device.h"
#include "backend/gpu/gpu_device.h"

namespace weft::backend {

std::vector<std::string> DeviceNames(std::string_view list) {
    std::vector<std::string> names(1);
    for (const char letter : list) {
        if (letter == ',')
            names.emplace_back();
        else
            names.back() += letter;
    }
    return names;
}

bool HasAuto(std::string_view list) {
    return std::ranges::count(DeviceNames(list), kAutoDevice) > 0;
}

bool MayAllUseHostCores(std::string_view list) {
    return std::ranges::none_of(DeviceNames(list),
                                [](const std::string& name) { return on_gpu::IsName(name); });
}

Status CheckDeviceNames(std::string_view list) {
    for (const std::string& name : DeviceNames(list)) WEFT_TRY(CheckDeviceName(name));
    return {};
}

Result<std::string> DeviceOfRank(std::string_view list, int rank, int ranks) {
    const std::vector<std::string> names = DeviceNames(list);
    if (names.size() == 1) return names[0];
    if (names.size() == static_cast<size_t>(ranks)) return names[static_cast<size_t>(rank)];
    return MakeError(ErrorCode::kUsage,
                     "--device {}: {} devices for {} rank{}; expected one for all, or one for each",
                     list, names.size(), ranks, ranks == 1 ? "" : "s");
}

std::string KeepDevices(const std::string& list, const std::vector<int>& kept) {
    const std::vector<std::string> names = DeviceNames(list);
    if (names.size() == 1) return list;
    std::vector<std::string> left;
    for (const int rank : kept) left.push_back(names.at(static_cast<size_t>(rank)));
    return fmt::format("{}", fmt::join(left, ","));
}

}  // namespace weft::backend
