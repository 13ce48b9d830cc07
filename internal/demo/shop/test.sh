#!/bin/sh
# Every line of cases is "wanted total" and then the order.
status=0
while read -r want order; do
	echo "$order" | tr ',' '\n' | tr 'x' ' ' > "${TMPDIR:-/tmp}/order"
	got=$(sh total.sh "${TMPDIR:-/tmp}/order")
	if [ "$got" != "$want" ]; then
		echo "order $order: total is $got, should be $want"
		status=1
	fi
done < cases
exit $status
