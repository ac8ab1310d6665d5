#include "gpu/cards.h"

#include <algorithm>
#include <utility>

namespace weft::gpu {
namespace {

// The devices of one driver, or the reason why there are none.
struct Listed {
    Api api;
    std::vector<Description> devices;
    std::string reason;
};

Listed ListOf(Api api) {
    Result<std::vector<Description>> found = ListDevices(api);
    if (!found.ok()) return {api, {}, found.error().message};
    if (!found->empty()) return {api, *std::move(found), ""};
    return {api, {}, fmt::format("{}: no device. {}", ApiTitle(api), DriverAdvice(api))};
}

void Add(Description device, std::vector<Card>& cards) {
    const auto same = std::ranges::find_if(
        cards, [&](const Card& card) { return IsSameCard(card.devices[0], device); });
    if (same != cards.end()) {
        same->devices.push_back(std::move(device));
    } else {
        cards.push_back({{std::move(device)}, {}});
    }
}

void AddMissing(const std::vector<Listed>& lists, Card& card) {
    for (const Listed& list : lists) {
        if (std::ranges::count(card.devices, list.api, &Description::api) > 0) continue;
        if (!IsFor(list.api, card.devices[0].vendor_id)) continue;
        card.missing.push_back(
            fmt::format("{}: {}", ApiName(list.api),
                        list.reason.empty() ? "the driver does not list this card" : list.reason));
    }
}

}  // namespace

const Description& Card::best() const {
    const auto usable = std::ranges::find_if(
        devices, [](const Description& device) { return device.unusable.empty(); });
    return usable == devices.end() ? devices[0] : *usable;
}

bool IsSameCard(const Description& a, const Description& b) {
    return !a.pci.empty() && a.pci == b.pci && (a.api != b.api || a.api == Api::kVulkan);
}

Cards ListCards() {
    std::vector<Listed> lists;
    for (const Api api : kApis) lists.push_back(ListOf(api));
    Cards all;
    for (Listed& list : lists) {
        for (Description& device : list.devices) Add(std::move(device), all.cards);
    }
    for (Card& card : all.cards) AddMissing(lists, card);
    if (!all.cards.empty()) return all;
    for (const Listed& list : lists) {
        const bool listed = std::ranges::find(all.none, list.reason) != all.none.end();
        if (!listed) all.none.push_back(list.reason);  // a build without kernels has one reason
    }
    return all;
}

}  // namespace weft::gpu
