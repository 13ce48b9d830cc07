#!/bin/sh
# total.sh FILE: the total of an order, in cents. Lines are "quantity price".
# Orders of 10,000 cents and more get ten per cent off.
sum=0
while read -r quantity price; do
	sum=$((sum + quantity * price))
done < "$1"
if [ "$sum" -gt 10000 ]; then
	sum=$((sum - sum / 10))
fi
echo "$sum"
