// One rank's view of a link, for tables that users read.
#pragma once

#include <string>

namespace weft::net {

// This rank's end of a link. Fields are "" and 0 within a host, or if unknown.
struct WireEnd {
    std::string transport;  // "tcp"
    std::string address;    // of the connection, without scope
    std::string interface;  // with this address
    int speed_mbps = 0;     // of the interface
    std::string device;     // verbs: "mlx5_0:1"
};

}  // namespace weft::net
