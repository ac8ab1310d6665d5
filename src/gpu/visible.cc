#include "gpu/visible.h"

#include <algorithm>
#include <utility>

namespace weft::gpu {
namespace {

// The device's index in the interface's list; its size: the list lacks the device.
size_t PlaceIn(const std::vector<Description>& shown, const Description& device) {
    const auto found = std::ranges::find_if(shown, [&](const Description& one) {
        return !device.pci.empty() && one.pci == device.pci;
    });
    return static_cast<size_t>(found - shown.begin());
}

// Whether each variable has the first GPU as its first entry.
bool NamesFirst(std::string_view text) {
    while (!text.empty()) {
        const std::string_view one = text.substr(0, text.find(' '));
        const std::string_view value = one.substr(one.find('=') + 1);
        if (value != "0" && !value.starts_with("0,") && !value.starts_with("GPU-")) return false;
        text.remove_prefix(std::min(text.size(), one.size() + 1));
    }
    return true;
}

void Reject(Description& device, std::string why, bool hidden) {
    if (!device.unusable.empty()) return;
    device.unusable = std::move(why);
    device.hidden = hidden;
}

}  // namespace

void HideOthers(Api api, const std::string& text, const Result<std::vector<Description>>& shown,
                std::vector<Description>& devices) {
    std::vector<size_t> places;  // in `devices`, of this vendor's GPUs
    for (size_t i = 0; i < devices.size(); ++i) {
        if (IsFor(api, devices[i].vendor_id)) places.push_back(i);
    }
    if (!shown.ok()) {
        if (places.size() == 1 && NamesFirst(text)) return;
        for (const size_t i : places) {
            Reject(
                devices[i],
                fmt::format("{} may hide it, and the {} driver, which numbers the GPUs, does not "
                            "start. Unset the variable, or: {}",
                            text, ApiTitle(api), shown.error().message),
                false);
        }
        return;
    }
    std::vector<Description> own;
    for (const size_t i : places) own.push_back(std::move(devices[i]));
    std::ranges::stable_sort(own, {}, [&](const Description& one) { return PlaceIn(*shown, one); });
    for (size_t i = 0; i < places.size(); ++i) {
        if (PlaceIn(*shown, own[i]) == shown->size())
            Reject(own[i], fmt::format("{} hides it", text), true);
        devices[places[i]] = std::move(own[i]);
    }
}

}  // namespace weft::gpu
