// Adds a host to a cluster by ssh, and removes one: `weft hosts add` and `weft hosts remove`.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "base/result.h"
#include "fleet/cluster_file.h"
#include "fleet/remote.h"

namespace weft::fleet {

// Called with a line for the user during the change.
using ChangeNotice = std::function<void(const std::string& line)>;

struct AddedHost {
    RemoteHost host;
    std::string program;  // path of weft on that host
    UpKind up = UpKind::kSystemd;
};
// Copies the program and the key to the host, starts `weft up` there, and adds the host to the
// cluster's file. Creates the key first if the cluster has none. ssh: USER@HOST or HOST. Errors: as
// ProbeHost, CopyProgram and StartUp; kUnsupported (another CPU architecture).
Result<AddedHost> AddHost(const std::string& cluster, const std::string& ssh,
                          const ChangeNotice& notice);

struct RemovedHost {
    ClusterHost host;
    // Whether `weft up` stopped and the key was deleted (StopUp). Empty: the file has no ssh
    // address.
    std::optional<Result<bool>> stopped;
};
// Removes the host from the cluster's file, then stops `weft up` there. name: the host's name or
// its ssh address. Errors: kNotFound; errors of the file.
Result<RemovedHost> RemoveHost(const std::string& cluster, const std::string& name);

}  // namespace weft::fleet
