// Over what a link goes, as one of its two ranks sees it: for tables that users read.
#pragma once

#include <string>

namespace weft::net {

// This rank's end of a link, as far as it has one: "" and 0 within a host, and where not known.
struct WireEnd {
    std::string transport;  // "tcp"
    std::string address;    // of the connection, without scope
    std::string interface;  // that has it
    int speed_mbps = 0;     // of the interface
    std::string device;     // verbs: "mlx5_0:1"
};

}  // namespace weft::net
