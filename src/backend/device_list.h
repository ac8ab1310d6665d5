// The value of --device as a list: one name for all ranks, or one per rank. "vulkan:0,cpu" gives
// rank 0 a GPU and rank 1 the processor. Pipeline stages may use different devices; tensor ranks
// may not (engine/rank/rank.h refuses them).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace weft::backend {

// Whether the list names `auto` for any rank.
bool HasAuto(std::string_view list);
// The list's names: at least one; a name may be empty.
std::vector<std::string> DeviceNames(std::string_view list);
// Checks each name. Errors: as CheckDeviceName.
Status CheckDeviceNames(std::string_view list);
// The device name of `rank`. Errors: kUsage (the list has neither one name nor `ranks` names).
Result<std::string> DeviceOfRank(std::string_view list, int rank, int ranks);
// Whether every rank may compute on the cores of its host: the list names no GPU.
bool MayAllUseHostCores(std::string_view list);
// Returns the list for the ranks that remain after other ranks left the job. kept[i] is the
// previous number of the rank that now has number i.
std::string KeepDevices(const std::string& list, const std::vector<int>& kept);

}  // namespace weft::backend
