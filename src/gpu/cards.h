// The GPUs of this machine: each card once, with its device of each driver.
//
// Thread: any.
#pragma once

#include <string>
#include <vector>

#include "gpu/device.h"

namespace weft::gpu {

struct Card {
    std::vector<Description> devices;  // at least one, in the order of kApis
    // The other drivers for GPUs of this vendor, each with the reason why it does not list the
    // card: "cuda: ...".
    std::vector<std::string> missing;

    // The device to use: the first usable one, else the first one.
    const Description& best() const;
};

struct Cards {
    std::vector<Card> cards;  // in the order in which the drivers list them
    std::string none;         // why `cards` is empty
};
Cards ListCards();

}  // namespace weft::gpu
