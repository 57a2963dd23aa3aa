// What a command prints and how it is interrupted. Only cli/ prints; the library returns results.
#pragma once

#include <atomic>
#include <string>
#include <string_view>

#include "base/json.h"
#include "base/progress.h"
#include "base/result.h"

namespace wader {

// Standard output. Failures (closed, full, a reader gone) are remembered, not thrown.
void print(std::string_view text);
void print_json(const Json& value);  // indented on a terminal, else on one line
void flush_output();
// io once something could not be written: commands that stream stop on it, run_cli reports it.
Status output_status();

// Standard error. Texts are made terminal-safe here. An error's first line follows "wader: error:
// ", the lines after it are hints.
void print_error(const Error& error);
void print_note(std::string_view text);
// A temporary line on standard error when that is a terminal, replaced by the next one; empty
// removes it.
void show_status(std::string_view text);

// Why something stands still: as show_status() on a terminal, else a line, but not the same one
// twice and none within ten seconds of another. Empty: it goes on.
void show_waiting(std::string_view why);

bool input_is_terminal();
bool output_is_terminal();
bool errors_are_terminal();
// Terminal on standard output and no NO_COLOR: styles may be used.
bool use_colour();
std::string dim(std::string_view text);  // unchanged without colour
std::string bold(std::string_view text);

// SIGINT and SIGTERM set the flag from now on instead of ending the program. Whoever acts on it
// clears it; the third signal in a row that nobody answered ends the program after all.
void watch_interrupts();
const std::atomic<bool>& interrupted();
void clear_interrupt();
// Waits until standard input has bytes or has ended; false when an interrupt is there or comes
// first.
bool wait_for_input();
bool terminate_requested();  // SIGTERM or SIGHUP came: end soon, whatever the flag says

// Draws a progress bar with rate and time left on a terminal, a line a phase elsewhere, or nothing.
// The returned function asks the work to stop once interrupted.
enum class ProgressStyle : uint8_t { human, json, none };
ProgressFn make_progress(ProgressStyle style);

}  // namespace wader
