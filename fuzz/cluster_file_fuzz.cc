// libFuzzer target: any text as a cluster's file. An accepted file is valid, and is the same after
// it is written and read again.
//     build-fuzz/fuzz/cluster_file_fuzz -max_total_time=60 -malloc_limit_mb=64
//         fuzz/corpus/cluster_file
#include <cstdint>
#include <string>

#include "base/check.h"
#include "fleet/cluster_file.h"
#include "net/addresses.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    using namespace weft;
    const std::string text(reinterpret_cast<const char*>(data), size);
    const auto file = fleet::ParseClusterFile(text, "home.toml");
    if (file.ok()) {
        for (const fleet::ClusterHost& host : file->hosts) {
            WEFT_CHECK(!host.name.empty() && host.name[0] != '-');
            WEFT_CHECK(host.ssh.empty() || host.ssh[0] != '-');
        }
        const auto again = fleet::ParseClusterFile(fleet::ClusterFileText(*file), "home.toml");
        WEFT_CHECK(again.ok() && *again == *file);
    } else {
        WEFT_CHECK(!file.error().message.empty());
    }
    const auto neighbours = net::ParseNeighbours(text);
    if (neighbours.ok()) {
        WEFT_CHECK(net::ParseNeighbours(net::NeighboursText(*neighbours)).value() == *neighbours);
    }
    const auto addresses = net::UnpackAddresses(text);
    if (addresses.ok()) {
        WEFT_CHECK(net::UnpackAddresses(net::PackAddresses(*addresses)).value() == *addresses);
    }
    return 0;
}
