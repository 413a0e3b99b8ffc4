local time = redis.call('TIME')
local turn = {
  now_text = string.format('%010d%06d', time[1], time[2]), now = time[1] * 1000000 + time[2], out = {}, n = 1, k = 1, at = 2,
  answer = answer, next_key = next_key, memory = memory, library = library, slow = slow,
}
turn.forgot = tonumber(ARGV[1])
-- Without a memory of a name, ballots are refused that may have been granted and forgotten since.
turn.floor = math.max(turn.forgot, turn.now - @ALLOWANCE_MS * 1000)
turn.out[1] = turn.now

while ARGV[turn.at] do
  local letter = string.byte(ARGV[turn.at])
  turn.at = turn.at + 1
  local before, ok, failure = turn.n, nil, nil
  if letter == 97 or letter == 65 then
    ok, failure = pcall(ask, turn, letter)
  elseif letter == 114 then
    ok, failure = pcall(release, turn)
  elseif letter == 110 then
    ok, failure = pcall(renew, turn)
  elseif letter == 109 then
    ok, failure = pcall(slow(turn).ask_all)
  elseif letter == 108 then
    ok, failure = pcall(slow(turn).look)
  elseif letter == 104 then
    ok, failure = pcall(slow(turn).heal)
  elseif letter == 117 then
    local at = turn.at
    turn.at = at + 2
    ok, failure = pcall(slow(turn).undo, ARGV[at], tonumber(ARGV[at + 1]), next_key(turn))
  else
    ok, failure = pcall(slow(turn).break_leases)
  end
  if not ok then
    for i = before + 1, turn.n do
      turn.out[i] = nil
    end
    turn.n = before
    answer(turn, @FAILED, type(failure) == 'table' and failure.err or tostring(failure))
  end
end
return turn.out
