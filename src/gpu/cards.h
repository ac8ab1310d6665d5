// The GPUs of this machine: each card once, with its device of each driver.
//
// Thread: any.
#pragma once

#include <string>
#include <vector>

#include "gpu/device.h"

namespace weft::gpu {

struct Card {
    // At least one, in the order of kApis. Two drivers of one API may list the card, such as RADV
    // and AMDVLK.
    std::vector<Description> devices;
    // The other drivers for GPUs of this vendor, each with the reason why it does not list the
    // card: "cuda: ...".
    std::vector<std::string> missing;

    // The device to use: the first usable one, else the first one.
    const Description& best() const;
};

// Whether both devices are one card, by their PCI address. Devices without one are cards of their
// own, and so are devices of CUDA or HIP: partitions of a card may share its address.
bool IsSameCard(const Description& a, const Description& b);

struct Cards {
    std::vector<Card> cards;        // in the order in which the drivers list them
    std::vector<std::string> none;  // why `cards` is empty: a reason of each driver
};
Cards ListCards();

}  // namespace weft::gpu
