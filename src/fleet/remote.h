// Another host, by ssh, as far as `weft hosts add` and `remove` need it: a program, the cluster's
// key and a unit of systemd's that keeps `weft up` running. What is sent there goes through ssh's
// standard input; no secret stands on a command line.
#pragma once

#include <string>
#include <vector>

#include "base/deadline.h"
#include "base/result.h"

namespace weft::fleet {

// What a host says of itself before anything is changed there.
struct RemoteHost {
    std::string name, machine;  // as `hostname` and `uname -m` say
    std::string program;        // path of weft; "": there is none
    std::string version;        // the first line of its --version
    bool systemd = false;       // the user has a systemd of his own
    bool linger = false;        // which runs without a login
};

// ssh: HOST or USER@HOST. No password is asked for. Errors: kUsage (not such a word), kNotFound (no
// ssh), kDenied, kIo and kTimeout: with the words of ssh and what to try.
Result<RemoteHost> ProbeHost(const std::string& ssh);

// Of what ProbeHost's script prints, among greetings of the host. Errors: kCorrupt.
Result<RemoteHost> ParseProbe(const std::string& ssh, const std::string& printed);

// Copies this program to ~/.local/bin/weft there, and returns where it is. Errors: as above; kIo
// where it does not run there, with what it said.
Result<std::string> CopyProgram(const std::string& ssh);

// How `weft up` runs there from now on.
enum class UpKind { kSystemd, kProcess };

// Writes the key (mode 0600) and has `program up` run. Errors: as above; kDenied where the host has
// another key of that cluster.
Result<UpKind> StartUp(const std::string& ssh, const std::string& cluster, const std::string& key,
                       const std::string& program, bool systemd);

// Ends `weft up` there, and removes what `hosts add` wrote for that host. The key goes with it,
// unless another host uses it from the same home folder: this one, or one that was added. Returns
// whether it is gone. Errors: as above; kIo where this host's own files can't be written.
Result<bool> StopUp(const std::string& ssh, const std::string& cluster);

// What `program doctor` prints there, without measurements.
Result<std::string> AskDoctor(const std::string& ssh, const std::string& program);

}  // namespace weft::fleet
