// Sets up another host over ssh, for `weft hosts add` and `remove`: the program, the cluster's key,
// and a systemd unit that keeps `weft up` running. Data travel through ssh's standard input, so no
// secret is on a command line.
#pragma once

#include <string>
#include <vector>

#include "base/deadline.h"
#include "base/result.h"

namespace weft::fleet {

// Properties of a host, read before any change.
struct RemoteHost {
    std::string name, machine;  // from `hostname` and `uname -m`
    std::string kernel;         // differs from that of any other host
    std::string program;        // path of weft; "": not found
    std::string version;        // first line of its --version
    bool systemd = false;       // the user has a systemd instance
    bool linger = false;        // that instance runs without a login
};

// ssh: HOST or USER@HOST. Asks for no password. Errors: kUsage (invalid address), kNotFound (no
// ssh), kDenied, kIo and kTimeout: with ssh's message and what to try.
Result<RemoteHost> ProbeHost(const std::string& ssh);

// Parses the output of ProbeHost's script, which may have the host's greetings before it. Errors:
// kCorrupt.
Result<RemoteHost> ParseProbe(const std::string& ssh, const std::string& printed);

// Copies this program to ~/.local/bin/weft on the other host, and returns the path there. Errors:
// as above; kIo: the copy does not run there (the message has its output).
Result<std::string> CopyProgram(const std::string& ssh);

// How `weft up` runs on the other host.
enum class UpKind { kSystemd, kProcess };

// Writes the key (mode 0600) and starts `program up`. Errors: as above; kDenied: the host has
// another key for that cluster.
Result<UpKind> StartUp(const std::string& ssh, const std::string& cluster, const std::string& key,
                       const std::string& program, bool systemd);

// Ends `weft up` there, and deletes the files that `hosts add` wrote for that host. Also deletes
// the key, unless this host or another added host uses the same home folder and thus the same key.
// Returns whether the key is deleted. Errors: as above; kIo: this host's own files can't be
// written.
Result<bool> StopUp(const std::string& ssh, const std::string& cluster);

// Output of `program doctor` there, without measurements.
Result<std::string> RunDoctor(const std::string& ssh, const std::string& program);

}  // namespace weft::fleet
