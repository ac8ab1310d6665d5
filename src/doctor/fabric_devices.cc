#include "doctor/fabric_devices.h"

#include <algorithm>

#include "doctor/rdma.h"

namespace weft::doctor {

std::vector<NetDevice> FabricDevices(HostView& view) {
    const std::vector<NetDevice> all = NetDevices(view);
    std::vector<std::string> rdma;
    for (const RdmaPort& port : RdmaPorts(view)) {
        for (std::string& name : RdmaInterfaces(view, port)) rdma.push_back(std::move(name));
    }
    std::vector<NetDevice> special, cards;
    double fastest = 0;
    for (const NetDevice& device : all) {
        if (!device.up || device.wireless || device.addresses.empty()) continue;
        const bool fabric = std::ranges::find(rdma, device.name) != rdma.end() ||
                            device.name.starts_with("thunderbolt") ||
                            view.Text("sys/class/net/" + device.name + "/type") == "32";
        if (fabric) special.push_back(device);
        if (device.physical || device.over_card) fastest = std::max(fastest, device.megabits);
    }
    if (!special.empty()) return special;
    for (const NetDevice& device : all) {
        const bool usable = device.up && !device.wireless && !device.addresses.empty();
        const bool card = device.physical || device.over_card;
        if (usable && card && device.megabits >= fastest) cards.push_back(device);
    }
    return cards;
}

}  // namespace weft::doctor
