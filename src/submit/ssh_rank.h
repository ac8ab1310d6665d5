// Finds a rank of an ssh job on the rank's host, for sh scripts. Each rank has its own folder,
// because hosts may share one home: ~/.local/state/weft/jobs/NAME/RANK. The folder's files are id
// (of the submission), key, log, pid, and after the rank's end status.
#pragma once

namespace weft::submit {

// Needs the variable job, the rank's folder. Sets pid to the rank's shell, or to nothing if it does
// not run. Checks the process's environment, because after a reboot, or when the system reuses the
// process id, the number in the file belongs to another process. One line, because any login shell
// must pass it on.
inline constexpr const char* kFindRank =
    "pid=$(cat \"$job/pid\" 2>/dev/null); "
    "cat \"/proc/$pid/environ\" 2>/dev/null | tr \"\\0\" \"\\n\" | "
    "grep -qxF \"WEFT_JOB=$job\" || pid=";

}  // namespace weft::submit
