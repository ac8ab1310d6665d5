// The names of --device as a list: one for all ranks, or one for each: "vulkan:0,cpu" is a GPU for
// rank 0 and the processor for rank 1. Stages of a pipeline may be unlike; tensor ranks may not
// (engine/rank.h refuses them).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace weft::backend {

// Whether the list leaves the choice to any rank.
bool HasAuto(std::string_view list);
// At least one; perhaps empty words.
std::vector<std::string> DeviceNames(std::string_view list);
// Each of them. Errors: those of CheckDeviceName.
Status CheckDeviceNames(std::string_view list);
// Errors: kUsage: the list has neither one name nor one for each of `ranks`.
Result<std::string> DeviceOfRank(std::string_view list, int rank, int ranks);
// Whether every rank may compute on the cores of its host: no name is that of a GPU.
bool MayAllUseHostCores(std::string_view list);
// For ranks that go on without others: kept[i] is the old number of rank i.
std::string KeepDevices(const std::string& list, const std::vector<int>& kept);

}  // namespace weft::backend
