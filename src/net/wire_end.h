// A rank's end of a link, for the tables that Weft prints.
#pragma once

#include <string>

namespace weft::net {

// A rank's end of a link. Fields are "" or 0 if they are unknown, or if both ends are on one host.
struct WireEnd {
    std::string transport;  // "tcp"
    std::string address;    // this end's address of the connection, without scope
    std::string interface;  // the network interface with this address
    int speed_mbps = 0;     // of the interface
    std::string device;     // verbs: "mlx5_0:1"
    bool encrypted = false;
};

}  // namespace weft::net
