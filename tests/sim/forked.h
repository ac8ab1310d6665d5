// Runs functions in forked processes, so that a run may crash, exit or leave anything behind.
#pragma once

#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <functional>
#include <string>

#include <fmt/format.h>

namespace weft::sim {

// The text that `body` returns, or how its process ended instead. limit_s: after this time, SIGALRM
// ends it.
inline std::string InFork(const std::function<std::string()>& body, unsigned limit_s) {
    int ends[2];
    if (::pipe(ends) != 0) return "no pipe";
    std::fflush(nullptr);
    const pid_t pid = ::fork();
    if (pid == 0) {
        ::close(ends[0]);
        ::alarm(limit_s);
        const std::string text = body();
        for (size_t at = 0; at < text.size();) {
            const ssize_t put = ::write(ends[1], text.data() + at, text.size() - at);
            if (put <= 0) break;
            at += static_cast<size_t>(put);
        }
        ::_exit(0);
    }
    ::close(ends[1]);
    std::string text;
    char buffer[65536];
    for (ssize_t got; (got = ::read(ends[0], buffer, sizeof buffer)) > 0;) {
        text.append(buffer, static_cast<size_t>(got));
    }
    ::close(ends[0]);
    int status = 0;
    ::waitpid(pid, &status, 0);
    if (WIFSIGNALED(status)) text += fmt::format("it was killed by signal {}", WTERMSIG(status));
    return text;
}

}  // namespace weft::sim
