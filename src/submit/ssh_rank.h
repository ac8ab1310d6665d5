// A rank of an ssh job on its host, for scripts of sh. Each rank has a folder of its own,
// ~/.local/state/weft/jobs/NAME/RANK, since hosts may share one home: id (of the submission), key,
// log, pid, and at the end status.
#pragma once

namespace weft::submit {

// Above it stands job, the rank's folder. Sets pid to the rank's shell, or to nothing where it does
// not run: since a boot, or once the number is used again, the file names another process, which
// has another environment. One line, since it goes through the login shell, of whatever kind.
inline constexpr const char* kFindRank =
    "pid=$(cat \"$job/pid\" 2>/dev/null); "
    "cat \"/proc/$pid/environ\" 2>/dev/null | tr \"\\0\" \"\\n\" | "
    "grep -qxF \"WEFT_JOB=$job\" || pid=";

}  // namespace weft::submit
