// Adds a host to a cluster by ssh, and removes one: `weft hosts add` and `weft hosts remove`.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "base/result.h"
#include "fleet/cluster_file.h"
#include "fleet/remote.h"

namespace weft::fleet {

// Called with a line for the user while the change is under way.
using ChangeNotice = std::function<void(const std::string& line)>;

struct AddedHost {
    RemoteHost host;
    std::string program;  // path of weft on that host
    UpKind up = UpKind::kSystemd;
};
// Gives the host the program and the key, starts `weft up` there, and writes the host into the
// cluster's file. Makes the key first where the cluster has none.
// ssh: USER@HOST or HOST. Errors: those of ProbeHost, CopyProgram and StartUp; kUnsupported
// (another CPU architecture).
Result<AddedHost> AddHost(const std::string& cluster, const std::string& ssh,
                          const ChangeNotice& notice);

struct RemovedHost {
    ClusterHost host;
    // Whether `weft up` stopped and the key is gone (StopUp). Empty: the file has no ssh address.
    std::optional<Result<bool>> stopped;
};
// Takes the host out of the cluster's file, then stops `weft up` there.
// name: of the host, or its ssh address. Errors: kNotFound; those of the file.
Result<RemovedHost> RemoveHost(const std::string& cluster, const std::string& name);

}  // namespace weft::fleet
