// A rank of an ssh job on its host, for sh scripts. Each rank has its own folder, because hosts may
// share one home: ~/.local/state/weft/jobs/NAME/RANK with id (of the submission), key, log, pid,
// and at the end status.
#pragma once

namespace weft::submit {

// Needs the variable job, the rank's folder. Sets pid to the rank's shell, or to nothing if it does
// not run. The environment shows whether the number in the file now belongs to another process,
// after a boot or when the system reuses it. One line, because any login shell must pass it on.
inline constexpr const char* kFindRank =
    "pid=$(cat \"$job/pid\" 2>/dev/null); "
    "cat \"/proc/$pid/environ\" 2>/dev/null | tr \"\\0\" \"\\n\" | "
    "grep -qxF \"WEFT_JOB=$job\" || pid=";

}  // namespace weft::submit
